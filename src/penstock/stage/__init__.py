"""The staging pass: one `mapInArrow` over a batch, or a loop in the driver for a small one, feeds every sink's stage writer."""
