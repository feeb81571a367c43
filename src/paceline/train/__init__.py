"""From a target and prompts to a trained drafter. PyTorch is needed by some modules of this package only."""
