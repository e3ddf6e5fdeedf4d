"""Many requests on one chip: plan memory, compile, schedule, run. The server talks to `core.Engine`."""
