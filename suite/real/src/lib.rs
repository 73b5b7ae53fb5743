//! Nothing: this package is there for its lock file.
