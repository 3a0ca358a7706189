"""The competitors. Each module imports its library where it is opened: no interpreter needs to have all of them."""
