//! [`Group`]: an ordered set of processes, and the set operations of MPI (MPI 5.0, section 7.3).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::error::{Class, Error, Result};
use crate::status::{PROC_NULL, UNDEFINED};

/// The result of comparing two groups or communicators (`MPI_IDENT` etc.; the numbers are those of the standard ABI).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Comparison {
    /// Both have the same members in the same order.
    Identical = 201,
    /// Only for communicators: the same members in the same order, in another context.
    Congruent = 202,
    /// Both have the same members, in different orders.
    Similar = 203,
    /// The members differ.
    Unequal = 204,
}

/// An ordered set of processes (`MPI_Group`): the member of rank `r` is `members()[r]`, a process's number in the job. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct Group(Arc<Members>);

#[derive(Debug)]
struct Members {
    size: usize,
    /// By rank. If each process has its own number as its rank, built on first use.
    list: OnceLock<Vec<u32>>,
    /// From a process to its rank; `None` where rank and process are the same number.
    ranks: Option<BTreeMap<u32, i32>>,
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0.ranks, &other.0.ranks) {
            (None, None) => self.0.size == other.0.size,
            (Some(_), Some(_)) => self.members() == other.members(),
            _ => false,
        }
    }
}

impl Eq for Group {}

impl Group {
    /// Creates a group of these processes.
    ///
    /// # Errors
    /// [`Class::RANK`] when a process occurs twice; [`Class::GROUP`] beyond `i32::MAX` members.
    pub fn new(list: Vec<u32>) -> Result<Self> {
        if i32::try_from(list.len()).is_err() {
            return Err(Error::new(Class::GROUP, "a group has at most 2147483647 members"));
        }
        if list.iter().enumerate().all(|(rank, process)| rank == *process as usize) {
            return Ok(Self::of_all(list.len() as u32));
        }
        let ranks: BTreeMap<u32, i32> = list.iter().copied().zip(0..).collect();
        if ranks.len() < list.len() {
            return Err(Error::new(Class::RANK, "a process occurs twice in the group"));
        }
        Ok(Self(Arc::new(Members { size: list.len(), list: list.into(), ranks: Some(ranks) })))
    }

    /// The empty group.
    pub fn empty() -> Self {
        Self::of_all(0)
    }

    /// The group of all processes of a job of `size`.
    pub fn of_all(size: u32) -> Self {
        Self(Arc::new(Members { size: size as usize, list: OnceLock::new(), ranks: None }))
    }

    /// The members, by rank.
    pub fn members(&self) -> &[u32] {
        self.0.list.get_or_init(|| (0..self.0.size as u32).collect())
    }

    /// The number of members (MPI 5.0, section 7.3.1).
    #[inline]
    pub fn size(&self) -> i32 {
        // [`Group::new`] checks that it fits.
        self.0.size as i32
    }

    /// The rank of a process; `None` if it is not a member (MPI 5.0, section 7.3.1).
    #[inline]
    pub fn rank_of(&self, process: u32) -> Option<i32> {
        match &self.0.ranks {
            None => ((process as usize) < self.0.size).then_some(process as i32),
            Some(ranks) => ranks.get(&process).copied(),
        }
    }

    /// Whether each member's rank is its process's number.
    #[inline]
    pub(crate) fn has_world_ranks(&self) -> bool {
        self.0.ranks.is_none()
    }

    /// The process of a rank; `None` if the rank does not exist.
    #[inline]
    pub fn process(&self, rank: i32) -> Option<u32> {
        let rank = usize::try_from(rank).ok().filter(|rank| *rank < self.0.size)?;
        Some(if self.0.ranks.is_none() { rank as u32 } else { self.members()[rank] })
    }

    /// Compares the members and their order (MPI 5.0, section 7.3.1).
    pub fn compare(&self, other: &Self) -> Comparison {
        if self == other {
            Comparison::Identical
        } else if self.size() == other.size() && other.members().iter().all(|&p| self.rank_of(p).is_some()) {
            Comparison::Similar
        } else {
            Comparison::Unequal
        }
    }

    /// Translates ranks to ranks of `other`: [`UNDEFINED`] for processes that are not in it, and [`PROC_NULL`] for itself
    /// (MPI 5.0, section 7.3.1).
    ///
    /// # Errors
    /// [`Class::RANK`] for a rank that this group does not have.
    pub fn translate(&self, ranks: &[i32], other: &Self) -> Result<Vec<i32>> {
        let one = |&rank: &i32| match rank {
            PROC_NULL => Ok(PROC_NULL),
            _ => Ok(other.rank_of(self.member(rank)?).unwrap_or(UNDEFINED)),
        };
        ranks.iter().map(one).collect()
    }

    /// The members of both groups: first those of this group, then those only in the other (MPI 5.0, section 7.3.2).
    ///
    /// # Errors
    /// [`Class::GROUP`] beyond `i32::MAX` members.
    pub fn union(&self, other: &Self) -> Result<Self> {
        let more = other.members().iter().filter(|&&process| self.rank_of(process).is_none());
        Self::new(self.members().iter().chain(more).copied().collect())
    }

    /// The members that are also in the other group (MPI 5.0, section 7.3.2).
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.filter(|process| other.rank_of(process).is_some())
    }

    /// The members that are not in the other group (MPI 5.0, section 7.3.2).
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.filter(|process| other.rank_of(process).is_none())
    }

    /// The members of these ranks, in this order (MPI 5.0, section 7.3.2).
    ///
    /// # Errors
    /// [`Class::RANK`] for a rank that does not exist, or that occurs twice.
    pub fn include(&self, ranks: &[i32]) -> Result<Self> {
        Self::new(ranks.iter().map(|&rank| self.member(rank)).collect::<Result<_>>()?)
    }

    /// The members without these ranks (MPI 5.0, section 7.3.2).
    ///
    /// # Errors
    /// As [`Group::include`].
    pub fn exclude(&self, ranks: &[i32]) -> Result<Self> {
        Ok(self.difference(&self.include(ranks)?))
    }

    /// The members of these ranges of ranks: first, last, stride (MPI 5.0, section 7.3.2).
    ///
    /// # Errors
    /// [`Class::ARG`] for a stride of 0; as [`Group::include`].
    pub fn include_ranges(&self, ranges: &[[i32; 3]]) -> Result<Self> {
        self.include(&self.expand_ranges(ranges)?)
    }

    /// The members without these ranges of ranks: first, last, stride (MPI 5.0, section 7.3.2).
    ///
    /// # Errors
    /// As [`Group::include_ranges`].
    pub fn exclude_ranges(&self, ranges: &[[i32; 3]]) -> Result<Self> {
        self.exclude(&self.expand_ranges(ranges)?)
    }

    fn member(&self, rank: i32) -> Result<u32> {
        let wrong =
            || Error::new(Class::RANK, format_args!("rank {rank} is not in a group of {}", self.size()));
        self.process(rank).ok_or_else(wrong)
    }

    fn filter(&self, which: impl Fn(u32) -> bool) -> Self {
        let list = self.members().iter().copied().filter(|&process| which(process)).collect();
        Self::new(list).expect("a subset of a group is a valid group")
    }

    fn expand_ranges(&self, ranges: &[[i32; 3]]) -> Result<Vec<i32>> {
        let mut ranks = Vec::new();
        for &[first, last, stride] in ranges {
            if stride == 0 {
                return Err(Error::new(Class::ARG, "a range of ranks has a stride of 0"));
            }
            self.member(first)?;
            let (mut rank, last) = (i64::from(first), i64::from(last));
            while if stride > 0 { rank <= last } else { rank >= last } {
                let narrow = i32::try_from(rank).unwrap_or(-1);
                self.member(narrow)?;
                ranks.push(narrow);
                rank += i64::from(stride);
            }
        }
        Ok(ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(list: &[u32]) -> Group {
        Group::new(list.to_vec()).expect("distinct")
    }

    #[test]
    fn set_operations_keep_the_order_of_the_first() {
        let (a, b) = (group(&[5, 1, 3]), group(&[3, 7, 5]));
        assert_eq!(a.union(&b).expect("few"), group(&[5, 1, 3, 7]));
        assert_eq!(a.intersection(&b), group(&[5, 3]));
        assert_eq!(a.difference(&b), group(&[1]));
        assert_eq!(a.difference(&a), Group::empty());
        assert_eq!(a.include(&[2, 0]).expect("ranks"), group(&[3, 5]));
        assert_eq!(a.exclude(&[1]).expect("ranks"), group(&[5, 3]));
        assert_eq!(a.exclude(&[1, 1]).expect_err("twice").class, Class::RANK);
        assert_eq!(a.include(&[3]).expect_err("none").class, Class::RANK);
    }

    #[test]
    fn ranges_of_either_direction_include_the_last_rank() {
        let all = Group::of_all(10);
        assert_eq!(all.include_ranges(&[[6, 2, -2], [0, 1, 1]]).expect("ranks"), group(&[6, 4, 2, 0, 1]));
        assert_eq!(all.include_ranges(&[[1, 0, 1]]).expect("no ranks"), Group::empty());
        assert_eq!(all.exclude_ranges(&[[0, 8, 2]]).expect("ranks"), group(&[1, 3, 5, 7, 9]));
        assert_eq!(all.include_ranges(&[[0, 1, 0]]).expect_err("stride").class, Class::ARG);
        assert_eq!(all.include_ranges(&[[0, 10, 1]]).expect_err("beyond").class, Class::RANK);
        assert_eq!(all.include_ranges(&[[0, i32::MAX, i32::MAX]]).expect_err("beyond").class, Class::RANK);
    }

    #[test]
    fn ranks_are_translated() {
        let (a, b) = (group(&[5, 1, 3]), group(&[3, 7, 5]));
        assert_eq!(a.translate(&[0, 1, 2, PROC_NULL], &b), Ok(vec![2, UNDEFINED, 0, PROC_NULL]));
        assert!(a.translate(&[-1], &b).is_err());
        assert_eq!((a.rank_of(3), a.rank_of(7), a.process(0), a.process(3)), (Some(2), None, Some(5), None));
        assert_eq!((Group::of_all(3).rank_of(2), Group::of_all(3).rank_of(3)), (Some(2), None));
        assert_eq!((Group::of_all(3).process(2), Group::of_all(3).process(3)), (Some(2), None));
        assert_eq!((Group::of_all(3), Group::of_all(3).members()), (group(&[0, 1, 2]), &[0, 1, 2][..]));
        assert!(Group::of_all(3) != Group::of_all(2) && group(&[1, 0]) != Group::of_all(2));
    }

    #[test]
    fn groups_compare_by_members_and_order() {
        let a = group(&[5, 1, 3]);
        assert_eq!(a.compare(&group(&[5, 1, 3])), Comparison::Identical);
        assert_eq!(a.compare(&group(&[1, 3, 5])), Comparison::Similar);
        assert_eq!(a.compare(&group(&[1, 3])), Comparison::Unequal);
        assert_eq!(a.compare(&group(&[1, 3, 4])), Comparison::Unequal);
        assert!(Group::new(vec![1, 2, 1]).is_err());
    }
}
