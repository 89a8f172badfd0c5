//! A network of namespaces inside a single process: the lab for network tests, and the demo.

pub mod demo;
pub mod lab;
