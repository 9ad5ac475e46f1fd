//! sweeper
