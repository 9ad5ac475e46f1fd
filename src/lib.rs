//! The adapters.
