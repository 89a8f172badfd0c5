//! A network of namespaces inside one process: the lab that network tests are built on, and the demo.

pub mod demo;
pub mod lab;
