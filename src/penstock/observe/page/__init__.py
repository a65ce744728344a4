"""The page for whoever is on call: rendered from status, ledger and what drivers noted, without scripts and foreign assets."""
