"""Programs that are compiled once on each machine: `call.program` in the place of `equinox.filter_jit`."""
