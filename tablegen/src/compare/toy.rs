//! The teaching demo: hashes so small that a person can follow them.
//!
//! ```text
//! position of a key     (37 · key + 11) mod 100
//! mod-N                 position mod number of nodes
//! ring                  tokens A 15, B 42, C 57, D 86, and 17 further for each virtual node more; the next token owns
//! rendezvous            (position · token + 9 · position + 7 · token) mod 97; the greatest wins
//! ```

use super::busiest;
use super::methods::Member;

/// The keys: 24 of them.
pub const KEYS: std::ops::Range<u32> = 20..44;

/// Nodes with their tokens. D is the one to join.
pub const NODES: [(&str, u32); 4] = [("A", 15), ("B", 42), ("C", 57), ("D", 86)];

/// Where a key stands.
pub const fn position(key: u32) -> u32 {
    (37 * key + 11) % 100
}

/// A node's number for a key at a position.
pub const fn score(position: u32, token: u32) -> u32 {
    (position * token + 9 * position + 7 * token) % 97
}

/// The three ways of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Modulo.
    ModN,
    /// So many tokens a node.
    Ring(u32),
    /// The greatest number wins.
    Rendezvous,
}

impl Side {
    /// As on the page.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ModN => "mod-N",
            Self::Ring(_) => "ring",
            Self::Rendezvous => "rendezvous",
        }
    }

    /// The id of the node, among `nodes`, that owns a key.
    pub fn owner<'n>(self, key: u32, nodes: &[(&'n str, u32)]) -> &'n str {
        let position = position(key);
        let owner = match self {
            Self::ModN => nodes.get(position as usize % nodes.len().max(1)).copied(),
            Self::Ring(tokens) => ring(position, nodes, tokens),
            Self::Rendezvous => {
                let better = |best: (&'n str, u32), one: (&'n str, u32)| {
                    if score(position, one.1) > score(position, best.1) { one } else { best }
                };
                nodes.iter().copied().reduce(better)
            }
        };
        owner.map_or("", |(id, _)| id)
    }

    /// The three lines under a side: keys per node, the busiest, and what the last change moved.
    pub fn lines(self, before: &[(&str, u32)], after: &[(&str, u32)]) -> [String; 3] {
        let owned = |id: &str| KEYS.filter(|key| self.owner(*key, after) == id).count();
        let members: Vec<Member> =
            after.iter().map(|(id, _)| Member { id: (*id).to_owned(), weight: 1.0 }).collect();
        let keys: Vec<u32> = after.iter().map(|(id, _)| u32::try_from(owned(id)).unwrap_or(0)).collect();
        let moves =
            KEYS.map(|key| (self.owner(key, before), self.owner(key, after))).filter(|(old, new)| old != new);
        let stays = |id: &str| after.iter().any(|(one, _)| *one == id);
        let was = |id: &str| before.iter().any(|(one, _)| *one == id);
        let unnecessary = moves.clone().filter(|(old, new)| stays(old) && was(new)).count();
        lines(&members, &keys, moves.count(), unnecessary)
    }
}

/// The three lines from numbers, as the page has them.
pub fn lines(members: &[Member], keys: &[u32], moved: usize, unnecessary: usize) -> [String; 3] {
    let all: u32 = keys.iter().sum();
    let per_node: Vec<String> =
        members.iter().zip(keys).map(|(one, keys)| format!("{} {keys}", one.id)).collect();
    let (id, load) = busiest(members, keys, all as usize);
    [
        format!("keys per node: {}", per_node.join(", ")),
        format!("busiest: {id}, {load:.2} × its fair share"),
        format!("moved by the last change: {moved} of {all}, {unnecessary} for no reason"),
    ]
}

fn ring<'n>(position: u32, nodes: &[(&'n str, u32)], tokens: u32) -> Option<(&'n str, u32)> {
    let all = nodes.iter().flat_map(|(id, token)| (0..tokens).map(move |v| ((token + 17 * v) % 100, *id)));
    let mut all: Vec<(u32, &str)> = all.collect();
    all.sort_unstable();
    let next = all.iter().find(|(token, _)| *token >= position).or(all.first());
    next.map(|(token, id)| (*id, *token))
}

/// The demo in text: A, B, C; then D joins.
pub fn text() -> String {
    let mut text = String::from("24 keys, nodes A, B and C; then D joins\n");
    for side in [Side::ModN, Side::Ring(1), Side::Ring(4), Side::Rendezvous] {
        let tokens = if let Side::Ring(tokens) = side { format!(", {tokens} a node") } else { String::new() };
        text += &format!("\n{}{tokens}\n", side.name());
        for line in side.lines(&NODES[..3], &NODES) {
            text += &format!("  {line}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_43_goes_where_the_demo_says() {
        assert_eq!(position(43), 2);
        let three = &NODES[..3];
        assert_eq!(Side::ModN.owner(43, three), "C");
        assert_eq!(Side::Ring(1).owner(43, three), "A");
        let scores: Vec<u32> = three.iter().map(|(_, token)| score(2, *token)).collect();
        assert_eq!(scores, [56, 8, 46]);
        assert_eq!(Side::Rendezvous.owner(43, three), "A");
    }

    #[test]
    fn rendezvous_moves_to_the_newcomer_alone() {
        let lines = Side::Rendezvous.lines(&NODES[..3], &NODES);
        assert!(lines[2].ends_with("5 of 24, 0 for no reason"), "{lines:?}");
        let lines = Side::ModN.lines(&NODES[..3], &NODES);
        assert!(!lines[2].ends_with(" 0 for no reason"), "{lines:?}");
    }

    #[test]
    fn no_two_nodes_tie() {
        for key in KEYS {
            let mut scores: Vec<u32> = NODES.iter().map(|(_, token)| score(position(key), *token)).collect();
            scores.sort_unstable();
            scores.dedup();
            assert_eq!(scores.len(), NODES.len(), "{key}");
        }
    }
}
