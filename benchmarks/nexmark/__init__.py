"""The Nexmark auction: a generator of its events, and its queries in Penstock's SQL."""
