//! Workspaces in this process: one directory for each session's sandbox, six tools over it, commands kept apart from the
//! host and from each other (spec: sandbox; DESIGN.md, section 8).
//!
//! | File | Has |
//! |---|---|
//! | [`manager`] | opens workspaces, one command at a time in each, stops and removes them; [`events`], [`records`], [`folders`] |
//! | [`backend`] | what every way of keeping apart has in common |
//! | [`choice`] | which of them is used: what is asked for, what works here |
//! | [`local`] | those whose helpers are this program |
//! | [`run`], [`streams`] | starts helpers, ends them, keeps their output within bounds |
//! | [`job`], [`helper`] | what a helper process is given, and what it does: this program again, with `__sandbox` |
//! | [`docker`] | the one whose commands run in containers |
//! | [`way_out`] | the socket in a sandbox through which it reaches the hosts of its list |
//! | [`namespaces`], [`seccomp`] | the cage that a helper builds around itself |
//! | [`host`] | the workspaces of a harness in a process of its own |
//! | [`input`] | what the tools are asked, read in one place |
//! | [`files`], [`search`] | the tools but for `bash`; they run in the cage, too |

pub mod backend;
pub mod choice;
pub mod docker;
pub mod events;
pub mod files;
pub mod folders;
pub mod helper;
pub mod host;
pub mod input;
pub mod job;
pub mod limits;
pub mod local;
pub mod manager;
pub mod namespaces;
pub mod records;
pub mod run;
pub mod search;
pub mod seccomp;
pub mod streams;
pub mod way_out;
