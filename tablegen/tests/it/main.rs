//! Tests of the generator as others use it: as a library, and by its command line.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod access;
mod browser;
mod commands;
mod compare;
mod config;
mod diff;
mod edit;
mod explain;
mod faults;
mod glb;
mod hops;
mod hostile;
mod incremental;
mod page;
mod plan;
mod reach;
mod rollout;
mod share;
mod simulate;
mod slow;
mod steps;
mod support;
mod tables;
mod vectors;
mod verdict;
