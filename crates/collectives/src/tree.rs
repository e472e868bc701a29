//! The binomial tree over numbers from 0 on: the children of a number differ from it in one bit below its lowest set bit.

/// The parent of a number; `None` for 0.
pub(crate) fn parent(number: usize) -> Option<usize> {
    (number > 0).then(|| number & (number - 1))
}

/// The children of a number among `size`, in ascending order of their subtrees' sizes.
pub(crate) fn children(number: usize, size: usize) -> Vec<usize> {
    let bits = if number == 0 { usize::BITS } else { number.trailing_zeros() };
    (0..bits)
        .map_while(|bit| 1_usize.checked_shl(bit)?.checked_add(number))
        .take_while(|&child| child < size)
        .collect()
}

/// The end of the number range of a subtree, among `size`: a subtree consists of consecutive numbers.
pub(crate) fn subtree_end(number: usize, size: usize) -> usize {
    if number == 0 { size } else { size.min(number + (1 << number.trailing_zeros())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_know_their_parent_and_cover_the_subtree() {
        for size in 1..40 {
            for number in 0..size {
                let mut next = number + 1;
                for child in children(number, size) {
                    assert_eq!((parent(child), child), (Some(number), next));
                    next = subtree_end(child, size);
                }
                assert_eq!(next, subtree_end(number, size), "{number} of {size}");
            }
        }
    }
}
