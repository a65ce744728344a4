"""The journal: a segmented log on disk. Pushed events are durable there before they are acknowledged, and Spark reads them."""
