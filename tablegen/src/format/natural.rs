//! Natural order of names: `web-2` before `web-10`. For text that people read; tables and JSON use the order of octets.

use std::cmp::Ordering;

/// Compares character by character, and groups of digits as numbers. Names that differ only in leading zeros are in
/// order of octets.
pub(crate) fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while let (Some(x), Some(y)) = (left.chars().next(), right.chars().next()) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            number(&mut left).cmp(&number(&mut right))
        } else {
            (left, right) = (after(left, x), after(right, y));
            x.cmp(&y)
        };
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

fn after(text: &str, first: char) -> &str {
    text.strip_prefix(first).unwrap_or_default()
}

/// Removes the leading digits of a text and returns their number and value. Without leading zeros, a longer number is
/// greater.
fn number<'t>(text: &mut &'t str) -> (usize, &'t str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let digits = digits.trim_start_matches('0');
    (digits.len(), digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(mut names: Vec<&str>) -> Vec<&str> {
        names.sort_by(|a, b| natural(a, b));
        names
    }

    #[test]
    fn digits_are_numbers() {
        assert_eq!(
            sorted(vec!["web-10", "web-2", "web-1", "web-02b", "web"]),
            ["web", "web-1", "web-2", "web-02b", "web-10"]
        );
        assert_eq!(
            sorted(vec!["r2-n1", "r10-n1", "r2-n10", "r2-n9"]),
            ["r2-n1", "r2-n9", "r2-n10", "r10-n1"]
        );
        assert_eq!(sorted(vec!["10.0.0.10", "10.0.0.9", "9.0.0.1"]), ["9.0.0.1", "10.0.0.9", "10.0.0.10"]);
        let long = ["1844674407370955161600000", "1844674407370955161600001"];
        assert_eq!(natural(long[0], long[1]), Ordering::Less);
    }

    #[test]
    fn what_is_no_digit_is_compared_as_it_is() {
        assert_eq!(sorted(vec!["b", "a", "é2", "é10", "", "A"]), ["", "A", "a", "b", "é2", "é10"]);
        assert_eq!(
            [natural("a1", "a01"), natural("a01", "a1"), natural("a", "a")],
            [Ordering::Greater, Ordering::Less, Ordering::Equal]
        );
    }

    proptest! {
        #[test]
        fn it_is_an_order(names in prop::collection::vec("[a0-9é-]{0,6}", 3)) {
            let [a, b, c] = [0, 1, 2].map(|at| names[at].as_str());
            prop_assert_eq!(natural(a, b), natural(b, a).reverse());
            prop_assert_eq!(natural(a, b).is_eq(), a == b);
            if natural(a, b).is_le() && natural(b, c).is_le() {
                prop_assert!(natural(a, c).is_le());
            }
        }
    }
}
