//! Workspaces in this process: one directory for each session's sandbox, six tools over it, commands kept apart from the
//! host and from each other (spec: sandbox; DESIGN.md, section 8).
//!
//! | File | Has |
//! |---|---|
//! | [`manager`] | opens workspaces, one command at a time in each, stops and removes them; [`events`], [`records`], [`folders`] |
//! | [`backend`] | what every way of keeping apart has in common |
//! | [`choice`] | which of them is used: what is asked for, what works here |
//! | [`local`] | those whose helpers are this program |
//! | [`run`], [`starts`], [`streams`] | asks for helpers, ends them, keeps their output within bounds; [`later`]: what is done once the answer is out; [`leftovers`]: what is done when this process is killed |
//! | [`helper`], [`stem`], [`keeper`], [`caged`] | what a helper is: this program again, with `__sandbox`; two always wait, with their cages built as far as they can be |
//! | [`job`], [`control`], [`rights`] | what it is given, what it says, and descriptors that go with either |
//! | [`namespaces`], [`landlock`], [`seccomp`] | the cages that it builds around itself; [`system`]: what of the host is seen in both |
//! | [`cgroups`], [`family`], [`usage`] | what all processes of a command may take together, and what a workspace has on disk |
//! | [`docker`] | the one whose commands run in containers |
//! | [`way_out`] | the socket in a sandbox through which it reaches the hosts of its list |
//! | [`host`], [`threads`] | the workspaces of a harness in a process of its own; the threads that managers work on, there and in `serve` |
//! | [`input`] | what the tools are asked, read in one place |
//! | [`files`], [`search`] | the tools but for `bash`; they run in the cage, too |

pub mod backend;
mod caged;
pub mod cgroups;
pub mod choice;
pub mod control;
pub mod docker;
pub mod events;
mod family;
pub mod files;
pub mod folders;
pub mod helper;
pub mod host;
pub mod input;
pub mod job;
mod keeper;
pub mod landlock;
mod later;
mod leftovers;
pub mod limits;
pub mod local;
pub mod manager;
pub mod namespaces;
pub mod records;
mod rights;
pub mod run;
pub mod search;
pub mod seccomp;
mod starts;
mod stem;
pub mod streams;
mod system;
pub mod threads;
pub mod usage;
pub mod way_out;
