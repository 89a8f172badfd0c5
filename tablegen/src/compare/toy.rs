//! The teaching example: hashes that are small enough to compute by hand.
//!
//! ```text
//! position of a key     (37 · key + 11) mod 100
//! mod-N                 position mod number of nodes
//! ring                  tokens A 15, B 42, C 57, D 86; each further virtual node adds 17; the next token owns the key
//! rendezvous            (position · token + 9 · position + 7 · token) mod 97; the greatest score owns the key
//! ```

use super::busiest;
use super::methods::Member;

/// The 24 keys.
pub const KEYS: std::ops::Range<u32> = 20..44;

/// The nodes with their tokens. D joins.
pub const NODES: [(&str, u32); 4] = [("A", 15), ("B", 42), ("C", 57), ("D", 86)];

/// The position of a key, 0 to 99.
pub const fn position(key: u32) -> u32 {
    (37 * key + 11) % 100
}

/// The score of a node for a key at a position.
pub const fn score(position: u32, token: u32) -> u32 {
    (position * token + 9 * position + 7 * token) % 97
}

/// The three methods of the example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToyMethod {
    /// Modulo.
    ModN,
    /// This number of tokens per node.
    Ring(u32),
    /// The node with the greatest score owns the key.
    Rendezvous,
}

impl ToyMethod {
    /// Name on the page.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ModN => "mod-N",
            Self::Ring(_) => "ring",
            Self::Rendezvous => "rendezvous",
        }
    }

    /// The id of the node that owns a key. `nodes` is not empty.
    pub fn owner<'n>(self, key: u32, nodes: &[(&'n str, u32)]) -> &'n str {
        let position = position(key);
        let owner = match self {
            Self::ModN => nodes[position as usize % nodes.len()],
            Self::Ring(tokens) => ring(position, nodes, tokens),
            Self::Rendezvous => {
                let better = |best: (&'n str, u32), node: (&'n str, u32)| {
                    if score(position, node.1) > score(position, best.1) { node } else { best }
                };
                nodes.iter().copied().reduce(better).expect("invariant: there are nodes")
            }
        };
        owner.0
    }

    /// The three lines below a method: keys per node, the busiest node, and the keys that the last change moved.
    pub fn lines(self, before: &[(&str, u32)], after: &[(&str, u32)]) -> [String; 3] {
        let owned = |id: &str| KEYS.map(|key| u32::from(self.owner(key, after) == id)).sum();
        let members: Vec<Member> =
            after.iter().map(|(id, _)| Member { id: (*id).to_owned(), weight: 1.0 }).collect();
        let keys: Vec<u32> = after.iter().map(|(id, _)| owned(id)).collect();
        let moves =
            KEYS.map(|key| (self.owner(key, before), self.owner(key, after))).filter(|(old, new)| old != new);
        let has = |nodes: &[(&str, u32)], id: &str| nodes.iter().any(|(node, _)| *node == id);
        let unnecessary = moves.clone().filter(|(old, new)| has(after, old) && has(before, new)).count();
        lines(&members, &keys, moves.count(), unnecessary)
    }
}

/// The three lines, as the page shows them.
pub fn lines(members: &[Member], keys: &[u32], moved: usize, unnecessary: usize) -> [String; 3] {
    let all: u32 = keys.iter().sum();
    let per_node: Vec<String> =
        members.iter().zip(keys).map(|(member, keys)| format!("{} {keys}", member.id)).collect();
    let (id, load) = busiest(members, keys, all as usize);
    [
        format!("keys per node: {}", per_node.join(", ")),
        format!("busiest: {id}, {load:.2} × its fair share"),
        format!("moved by the last change: {moved} of {all}, {unnecessary} unnecessarily"),
    ]
}

fn ring<'n>(position: u32, nodes: &[(&'n str, u32)], tokens: u32) -> (&'n str, u32) {
    let all = nodes.iter().flat_map(|(id, token)| (0..tokens).map(move |v| ((token + 17 * v) % 100, *id)));
    let mut all: Vec<(u32, &str)> = all.collect();
    all.sort_unstable();
    let next = all.iter().find(|(token, _)| *token >= position).or(all.first());
    let (token, id) = next.expect("invariant: there are tokens");
    (*id, *token)
}

/// The example as text: nodes A, B and C; then D joins.
pub fn text() -> String {
    let mut text = String::from("24 keys, nodes A, B and C; then D joins\n");
    for side in [ToyMethod::ModN, ToyMethod::Ring(1), ToyMethod::Ring(4), ToyMethod::Rendezvous] {
        let tokens =
            if let ToyMethod::Ring(tokens) = side { format!(", {tokens} per node") } else { String::new() };
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
    fn key_43_has_the_owners_of_the_example() {
        assert_eq!(position(43), 2);
        let three = &NODES[..3];
        assert_eq!(ToyMethod::ModN.owner(43, three), "C");
        assert_eq!(ToyMethod::Ring(1).owner(43, three), "A");
        let scores: Vec<u32> = three.iter().map(|(_, token)| score(2, *token)).collect();
        assert_eq!(scores, [56, 8, 46]);
        assert_eq!(ToyMethod::Rendezvous.owner(43, three), "A");
    }

    #[test]
    fn rendezvous_moves_keys_to_the_new_node_only() {
        let lines = ToyMethod::Rendezvous.lines(&NODES[..3], &NODES);
        assert!(lines[2].ends_with("5 of 24, 0 unnecessarily"), "{lines:?}");
        let lines = ToyMethod::ModN.lines(&NODES[..3], &NODES);
        assert!(!lines[2].ends_with(" 0 unnecessarily"), "{lines:?}");
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
