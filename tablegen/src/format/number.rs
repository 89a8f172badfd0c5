//! Numbers in text: digit groups, plurals, signs, percentages.

/// Digits in groups of three: `65,536`.
pub fn grouped(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 row`, `65,536 rows`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{} {noun}{}", grouped(count), either(count, "", "s"))
}

/// `one` for the count 1, `more` for every other count.
pub fn either<'w>(count: impl TryInto<u64>, one: &'w str, more: &'w str) -> &'w str {
    if matches!(count.try_into(), Ok(1)) { one } else { more }
}

/// A change with its sign: `+719`, `−6,544`, `±0`.
pub fn signed(before: u32, after: u32) -> String {
    match after.checked_sub(before) {
        Some(0) => "±0".to_owned(),
        Some(more) => format!("+{}", grouped(more)),
        None => format!("−{}", grouped(before.saturating_sub(after))),
    }
}

/// A percentage with two decimals: `9.99 %`. A percentage that would round to 0 is `< 0.01 %`.
pub fn percent(part: f64, whole: f64) -> String {
    let percent = if whole > 0.0 { part * 100.0 / whole } else { 0.0 };
    if percent > 0.0 && percent < 0.005 { "< 0.01 %".to_owned() } else { format!("{percent:.2} %") }
}

/// Rows and their share: `6,544 (9.99 %)`. No rows are `0`.
pub fn rows(part: u32, whole: u32) -> String {
    match part {
        0 => "0".to_owned(),
        part => format!("{} ({})", grouped(part), percent(part.into(), whole.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups() {
        let texts = [0u32, 7, 999, 1_000, 65_536, 4_194_304].map(grouped);
        assert_eq!(texts, ["0", "7", "999", "1,000", "65,536", "4,194,304"]);
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!(
            [0usize, 1, 2, 65_536].map(|count| counted(count, "row")),
            ["0 rows", "1 row", "2 rows", "65,536 rows"]
        );
        assert_eq!([0u32, 1, 2].map(|count| either(count, "gets", "get")), ["get", "gets", "get"]);
    }

    #[test]
    fn changes_have_a_sign() {
        assert_eq!([signed(5, 5), signed(0, 1_234), signed(6_544, 0)], ["±0", "+1,234", "−6,544"]);
    }

    #[test]
    fn a_share_is_never_rounded_to_nothing() {
        assert_eq!(percent(1.0, 65_536.0), "< 0.01 %");
        assert_eq!(percent(0.0, 65_536.0), "0.00 %");
        assert_eq!(percent(1.0, 0.0), "0.00 %");
        assert_eq!(rows(6_544, 65_536), "6,544 (9.99 %)");
    }
}
