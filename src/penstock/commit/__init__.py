"""The protocol's driver side: recognise a batch, decide it once, publish it by rolling forward."""
