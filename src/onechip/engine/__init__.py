"""Many requests on one chip: plan memory, compile, schedule, run. `core.Engine` is what the server talks to."""
