//! Which backends may own rows, and their fair shares.

use common::backend::{Backend, Health, State};
use common::table::Table;

/// For each backend, whether it may own rows. Accepting backends may. If there are none, backends in service
/// may, whatever their health; if there are none of these either, draining backends may.
pub(crate) fn eligible(backends: &[Backend]) -> Vec<bool> {
    let wanted = |backend: &Backend| matches!(backend.state, State::Active | State::Filling);
    let levels: [&dyn Fn(&Backend) -> bool; 3] =
        [&Backend::accepts, &wanted, &|backend| backend.state == State::Draining];
    let level = levels.into_iter().find(|level| backends.iter().any(level));
    backends.iter().map(|backend| level.is_some_and(|level| level(backend))).collect()
}

/// For each backend, the weight with which it owns rows; 0 if it may own none.
pub(super) fn owning_weights(table: &Table) -> Vec<f64> {
    let all = eligible(&table.backends).into_iter().zip(&table.backends);
    all.map(|(eligible, backend)| if eligible { backend.effective_weight() } else { 0.0 }).collect()
}

/// For each backend, its part of the total weight of the backends that may own rows.
pub(super) fn fair_shares(table: &Table) -> Vec<f64> {
    let weights = owning_weights(table);
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| if sum > 0.0 { weight / sum } else { 0.0 }).collect()
}

/// `active`, `filling 25 %`, `draining, down`.
pub(super) fn condition(backend: &Backend) -> String {
    let mut words = backend.state.name().to_owned();
    if backend.state == State::Filling {
        words += &format!(" {} %", backend.fill);
    }
    if backend.health == Health::Down {
        words += ", down";
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_accepts_then_health_is_ignored_then_draining_ones_serve() {
        let backend = |state, health| Backend {
            state,
            health,
            ..Backend::new("b", std::net::Ipv4Addr::LOCALHOST.into())
        };
        let (up, down) = (Health::Up, Health::Down);
        let of = |all: &[(State, Health)]| {
            eligible(&all.iter().map(|(state, health)| backend(*state, *health)).collect::<Vec<_>>())
        };
        assert_eq!(
            of(&[(State::Active, up), (State::Active, down), (State::Draining, up)]),
            [true, false, false]
        );
        assert_eq!(of(&[(State::Filling, down), (State::Draining, up)]), [true, false]);
        assert_eq!(of(&[(State::Draining, down), (State::Inactive, up)]), [true, false]);
        assert_eq!(of(&[(State::Inactive, up)]), [false]);
    }
}
