"""How the sums over tokens are done."""
