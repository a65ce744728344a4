"""What tests are made of: for Penstock itself and for people who write sinks or run pipelines."""
