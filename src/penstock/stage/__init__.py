"""The staging pass: one `mapInArrow` over a batch, or the same in the driver for a small one, feeds every sink's stage writer."""
