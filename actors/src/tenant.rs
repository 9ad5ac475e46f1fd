//! The door for everybody outside the tree.
