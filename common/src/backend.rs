//! Backends, and the two separate things known of them: what the operator wants ([`State`]) and what probes say
//! ([`Health`]). Systems that merged the two have shipped bugs; here they meet only in [`Backend::accepts`].

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// What the operator wants of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// New to the table: wins its rows with a part of its weight.
    Filling,
    /// In full service.
    Active,
    /// Keeps its connections and gets no new ones.
    Draining,
    /// Not used; holds no connection.
    Inactive,
}

impl State {
    /// All states, in the order of their numbers in the file.
    pub const ALL: [Self; 4] = [Self::Filling, Self::Active, Self::Draining, Self::Inactive];

    /// The word in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filling => "filling",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Inactive => "inactive",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for State {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.name() == word).ok_or(())
    }
}

/// What probes say of a backend. One that was never probed counts as up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// Serves, or was not probed yet.
    Up,
    /// Failed its probes.
    Down,
}

impl Health {
    /// The word in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Health {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        [Self::Up, Self::Down].into_iter().find(|health| health.name() == word).ok_or(())
    }
}

/// A server behind a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Stable name: the ranking hashes this and nothing else, so renumbering a backend moves no row.
    pub id: String,
    /// Where encapsulated packets for it go.
    pub address: IpAddr,
    /// Relative share of rows; finite and greater than zero.
    pub weight: f64,
    /// Percent of the weight that counts while [`State::Filling`]: 1…100.
    pub fill: u8,
    /// Failure domain, if the operator names one.
    pub zone: Option<String>,
    /// What the operator wants.
    pub state: State,
    /// What probes say.
    pub health: Health,
}

impl Backend {
    /// An active, healthy backend of weight 1 in no zone.
    pub fn new(id: impl Into<String>, address: IpAddr) -> Self {
        Self {
            id: id.into(),
            address,
            weight: 1.0,
            fill: 100,
            zone: None,
            state: State::Active,
            health: Health::Up,
        }
    }

    /// May it get new connections?
    pub fn accepts(&self) -> bool {
        matches!(self.state, State::Active | State::Filling) && self.health == Health::Up
    }

    /// May it hold connections, and so stand in a hop list?
    pub fn is_candidate(&self) -> bool {
        self.state != State::Inactive
    }

    /// Is it a candidate that gets no new connections: draining or down? It may hold connections of rows for which it is
    /// preferred to their owner.
    pub fn is_passed_over(&self) -> bool {
        self.is_candidate() && !self.accepts()
    }

    /// Does a packet whose primary this is carry `hop`? The outer header and the hops after it are of one address family.
    pub fn carries(&self, hop: &Self) -> bool {
        self.address.is_ipv6() == hop.address.is_ipv6()
    }

    /// The weight that ranks it: while filling, `fill` percent of [`Backend::weight`].
    pub fn effective_weight(&self) -> f64 {
        match self.state {
            State::Filling => self.weight * f64::from(self.fill) / 100.0,
            _ => self.weight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for state in State::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        for health in [Health::Up, Health::Down] {
            assert_eq!(health.to_string().parse(), Ok(health));
        }
        assert_eq!("Active".parse::<State>(), Err(()));
    }

    #[test]
    fn candidates_that_are_draining_or_down_are_passed_over_and_the_others_accept() {
        let mut backend = Backend::new("b", "10.0.0.1".parse().unwrap());
        let mut accepting = Vec::new();
        for state in State::ALL {
            for health in [Health::Up, Health::Down] {
                (backend.state, backend.health) = (state, health);
                if backend.accepts() {
                    accepting.push((state, health));
                }
                let unfit = state == State::Draining || health == Health::Down;
                assert_eq!(backend.is_passed_over(), unfit && state != State::Inactive, "{state} {health}");
            }
        }
        assert_eq!(accepting, [(State::Filling, Health::Up), (State::Active, Health::Up)]);
    }

    #[test]
    fn fill_counts_only_while_filling() {
        let mut backend = Backend::new("b", "10.0.0.1".parse().unwrap());
        (backend.weight, backend.fill) = (4.0, 25);
        assert_eq!(backend.effective_weight(), 4.0);
        backend.state = State::Filling;
        assert_eq!(backend.effective_weight(), 1.0);
    }
}
