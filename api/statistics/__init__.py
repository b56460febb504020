"""What values say of that which they were drawn from: estimates with confidence intervals. It knows of no profiles."""
