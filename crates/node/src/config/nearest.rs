//! "Did you mean …?": the known word that is nearest to one that is not known.

/// The candidate that is fewest changes away, if those are few enough for a slip of the fingers.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let most = (word.chars().count() / 3).max(1);
    let near = |candidate: &'a str| (distance(word, candidate), candidate);
    let best = candidates.map(near).min_by_key(|(changes, _)| *changes)?;
    (best.0 <= most).then_some(best.1)
}

/// The same as the end of a sentence; nothing where no word is near.
pub(crate) fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    nearest(word, candidates).map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

/// Letters to insert, drop, replace or swap with their neighbour.
fn distance(word: &str, other: &str) -> usize {
    let (word, other): (Vec<char>, Vec<char>) = (word.chars().collect(), other.chars().collect());
    let at = |row: &[usize], place: usize| row.get(place).copied().unwrap_or(usize::MAX);
    let pair =
        |text: &[char], place: usize| Some((*text.get(place.checked_sub(1)?)?, *text.get(place)?));
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (up, letter) in word.iter().enumerate() {
        let mut row = vec![up + 1];
        for (left, candidate) in other.iter().enumerate() {
            let replaced = at(&last, left).saturating_add(usize::from(letter != candidate));
            let dropped = at(&last, left + 1).saturating_add(1);
            let inserted = at(&row, left).saturating_add(1);
            let is_swap = match (pair(&word, up), pair(&other, left)) {
                (Some((first, second)), Some(theirs)) => (second, first) == theirs,
                _ => false,
            };
            let swapped = match left.checked_sub(1) {
                Some(place) if is_swap => at(&before, place).saturating_add(1),
                _ => usize::MAX,
            };
            row.push(replaced.min(dropped).min(inserted).min(swapped));
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_finds_its_word_and_another_word_finds_none() {
        let words = ["error", "warn", "info", "debug", "trace"];
        let near = |word| nearest(word, words.into_iter());
        assert_eq!(near("inof"), Some("info"));
        assert_eq!(near("debg"), Some("debug"));
        assert_eq!(near("warm"), Some("warn"));
        assert_eq!(near("loud"), None);
        assert_eq!((distance("abc", "abc"), distance("", "abc"), distance("ab", "ba")), (0, 3, 1));
    }
}
