//! Ways to move frames.

pub mod pcap;
