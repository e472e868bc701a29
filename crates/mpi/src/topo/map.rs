//! [`placed`]: which member takes which place of a topology, so that neighbours come to be on one host where the program lets ranks be
//! changed.

use std::cmp::Reverse;
use std::collections::VecDeque;

/// Edges of a topology: two places, and what the edge weighs.
pub(crate) type Edge = (usize, usize, u64);

/// The member at each place, given the host of each member; `None` if it is best as it is. There are as many places as members.
///
/// Places are given to one host after the other. A host takes the place next that has most to do with those it has; of equal ones, that
/// which is nearest to its first one, so that blocks come out as wide as they are long. What comes out counts only if less goes between hosts than with members as they are, and than with the members
/// of each host one behind the other, which is the other way that is looked at.
pub(crate) fn placed(hosts: &[usize], edges: &[Edge]) -> Option<Vec<usize>> {
    let members = hosts.len();
    let mut around = vec![Vec::new(); members];
    for (a, b, weight) in edges.iter().filter(|(a, b, _)| a != b) {
        around[*a].push((*b, *weight));
        around[*b].push((*a, *weight));
    }
    let mut of_host: Vec<Vec<usize>> = vec![Vec::new(); hosts.iter().max()? + 1];
    hosts.iter().enumerate().for_each(|(member, host)| of_host[*host].push(member));
    let sizes: Vec<usize> = of_host.iter().map(Vec::len).collect();
    let in_rows: Vec<usize> = (0..sizes.len()).flat_map(|host| vec![host; sizes[host]]).collect();
    let grown = grown(&sizes, &around);
    let best = [in_rows, grown].into_iter().min_by_key(|hosts| cut(hosts, edges))?;
    if cut(&best, edges) >= cut(hosts, edges) {
        return None;
    }
    let mut left: Vec<_> = of_host.into_iter().map(Vec::into_iter).collect();
    best.into_iter().map(|host| left[host].next()).collect()
}

/// What goes between hosts, if the place `p` is on host `hosts[p]`.
fn cut(hosts: &[usize], edges: &[Edge]) -> u64 {
    let between = edges.iter().filter(|(a, b, _)| hosts[*a] != hosts[*b]);
    between.map(|(_, _, weight)| weight).sum()
}

/// The host of each place, where each host in turn takes as many as it has members.
fn grown(sizes: &[usize], around: &[Vec<(usize, u64)>]) -> Vec<usize> {
    const FREE: usize = usize::MAX;
    let mut hosts = vec![FREE; around.len()];
    for (host, size) in sizes.iter().enumerate() {
        // How much each place has to do with those of this host, and how far it is from the first one.
        let (mut drawn, mut far) = (vec![0; around.len()], vec![0; around.len()]);
        for number in 0..*size {
            let is_free = |place: usize| hosts[place] == FREE;
            // A host begins in a corner: where least of what is around is free.
            let open = |place: usize| around[place].iter().filter(|(other, _)| is_free(*other)).count();
            let rank = |place: usize| (Reverse(drawn[place]), far[place], open(place), place);
            let Some(next) =
                (0..hosts.len()).filter(|place| is_free(*place)).min_by_key(|place| rank(*place))
            else {
                break;
            };
            if number == 0 {
                far = steps_from(next, around);
            }
            hosts[next] = host;
            around[next].iter().for_each(|(other, weight)| drawn[*other] += weight);
        }
    }
    hosts
}

/// How many edges lie between a place and each other one.
fn steps_from(first: usize, around: &[Vec<(usize, u64)>]) -> Vec<usize> {
    let mut far = vec![usize::MAX; around.len()];
    far[first] = 0;
    let mut next = VecDeque::from([first]);
    while let Some(place) = next.pop_front() {
        for (other, _) in &around[place] {
            if far[*other] == usize::MAX {
                far[*other] = far[place] + 1;
                next.push_back(*other);
            }
        }
    }
    far
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(rows: usize, columns: usize, is_ring: bool) -> Vec<Edge> {
        let place = |row: usize, column: usize| row % rows * columns + column % columns;
        let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        all.flat_map(|(row, column)| {
            let down = (is_ring || row + 1 < rows).then(|| (place(row, column), place(row + 1, column), 1));
            let right =
                (is_ring || column + 1 < columns).then(|| (place(row, column), place(row, column + 1), 1));
            down.into_iter().chain(right)
        })
        .collect()
    }

    /// What goes between hosts before and behind, if each member is somewhere exactly once.
    fn cuts(hosts: &[usize], edges: &[Edge]) -> (u64, u64) {
        let order = placed(hosts, edges).unwrap_or_else(|| (0..hosts.len()).collect());
        let mut all = order.clone();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..hosts.len()), "each member has one place");
        let behind: Vec<usize> = order.iter().map(|member| hosts[*member]).collect();
        (cut(hosts, edges), cut(&behind, edges))
    }

    #[test]
    fn neighbours_come_to_be_on_one_host() {
        let in_turn = |members: usize, hosts: usize| (0..members).map(|m| m % hosts).collect::<Vec<_>>();
        let in_rows =
            |members: usize, hosts: usize| (0..members).map(|m| m * hosts / members).collect::<Vec<_>>();
        // Four hosts of four: four blocks of two by two.
        assert_eq!(cuts(&in_turn(16, 4), &grid(4, 4, false)), (12, 8));
        assert_eq!(cuts(&in_rows(16, 4), &grid(4, 4, false)), (12, 8));
        let (before, behind) = cuts(&in_turn(64, 4), &grid(8, 8, false));
        assert!(before == 56 && behind <= 20, "{before} {behind}");
        let (before, behind) = cuts(&in_turn(32, 4), &grid(8, 4, true));
        assert!(before >= 32 && behind <= 24, "{before} {behind}");
        // Two hosts, a ring.
        let ring: Vec<Edge> = (0..10).map(|at| (at, (at + 1) % 10, 1)).collect();
        assert_eq!(cuts(&in_turn(10, 2), &ring), (10, 2));
        // Hosts of unlike sizes.
        let hosts = [0, 1, 0, 2, 1, 0, 0, 2, 0, 1];
        assert_eq!(cuts(&hosts, &ring).1, 3);
    }

    #[test]
    fn what_cannot_be_better_stays() {
        assert_eq!(placed(&[0; 16], &grid(4, 4, true)), None, "one host");
        assert_eq!(placed(&[0, 0, 1, 1], &[(0, 1, 5), (2, 3, 5), (1, 2, 1)]), None);
        assert_eq!(placed(&[0, 1], &[]), None);
        assert_eq!(placed(&[], &[]), None);
        // Weights decide.
        let order = placed(&[0, 0, 1, 1], &[(0, 2, 9), (1, 3, 9), (0, 1, 1), (2, 3, 1)]).expect("better");
        assert_eq!(order, [0, 2, 1, 3]);
    }
}
