"""Pictures, from measures and trajectories only."""
