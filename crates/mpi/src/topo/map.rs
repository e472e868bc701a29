//! [`map_ranks`]: assigns members to the places of a topology, so that neighbours are on the same host where the program allows
//! reordering.

use std::cmp::Reverse;
use std::collections::VecDeque;

/// An edge of a topology: two places and a weight.
pub(crate) type Edge = (usize, usize, u64);

/// The member at each place, given the host of each member; `None` if the present order is best. There are as many places as
/// members.
///
/// Places are assigned to one host after the other. A host takes the place with the greatest edge weight to its own places next;
/// among equal ones, the place closest to its first one, so that its block becomes about as wide as long. The result is used only
/// if it has less traffic between hosts than the present order, and less than an order in which the members of each host are
/// consecutive.
pub(crate) fn map_ranks(hosts: &[usize], edges: &[Edge]) -> Option<Vec<usize>> {
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
    let grown = grow_partitions(&sizes, &around);
    let best = [in_rows, grown].into_iter().min_by_key(|hosts| edge_cut(hosts, edges))?;
    if edge_cut(&best, edges) >= edge_cut(hosts, edges) {
        return None;
    }
    let mut left: Vec<_> = of_host.into_iter().map(Vec::into_iter).collect();
    best.into_iter().map(|host| left[host].next()).collect()
}

/// The total weight of edges between hosts, if place `p` is on host `hosts[p]`.
fn edge_cut(hosts: &[usize], edges: &[Edge]) -> u64 {
    let between = edges.iter().filter(|(a, b, _)| hosts[*a] != hosts[*b]);
    between.map(|(_, _, weight)| weight).sum()
}

/// The host of each place, where each host in turn takes as many places as it has members.
fn grow_partitions(sizes: &[usize], around: &[Vec<(usize, u64)>]) -> Vec<usize> {
    const FREE: usize = usize::MAX;
    let mut hosts = vec![FREE; around.len()];
    for (host, size) in sizes.iter().enumerate() {
        // For each place, the weight of its edges to this host's places, and its distance from the first of these.
        let (mut drawn, mut far) = (vec![0; around.len()], vec![0; around.len()]);
        for number in 0..*size {
            let is_free = |place: usize| hosts[place] == FREE;
            // A host starts in a corner: at the place with the fewest free neighbours.
            let open = |place: usize| around[place].iter().filter(|(other, _)| is_free(*other)).count();
            let rank = |place: usize| (Reverse(drawn[place]), far[place], open(place), place);
            let Some(next) =
                (0..hosts.len()).filter(|place| is_free(*place)).min_by_key(|place| rank(*place))
            else {
                break;
            };
            if number == 0 {
                far = distances_from(next, around);
            }
            hosts[next] = host;
            around[next].iter().for_each(|(other, weight)| drawn[*other] += weight);
        }
    }
    hosts
}

/// The number of edges on the shortest path from a place to each other one.
fn distances_from(first: usize, around: &[Vec<(usize, u64)>]) -> Vec<usize> {
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

    /// The weight between hosts before and after, for a valid permutation of the members.
    fn cuts(hosts: &[usize], edges: &[Edge]) -> (u64, u64) {
        let order = map_ranks(hosts, edges).unwrap_or_else(|| (0..hosts.len()).collect());
        let mut all = order.clone();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..hosts.len()), "each member has one place");
        let reordered: Vec<usize> = order.iter().map(|member| hosts[*member]).collect();
        (edge_cut(hosts, edges), edge_cut(&reordered, edges))
    }

    #[test]
    fn map_puts_neighbours_on_one_host() {
        let in_turn = |members: usize, hosts: usize| (0..members).map(|m| m % hosts).collect::<Vec<_>>();
        let in_rows =
            |members: usize, hosts: usize| (0..members).map(|m| m * hosts / members).collect::<Vec<_>>();
        // Four hosts with four members: four blocks of two by two.
        assert_eq!(cuts(&in_turn(16, 4), &grid(4, 4, false)), (12, 8));
        assert_eq!(cuts(&in_rows(16, 4), &grid(4, 4, false)), (12, 8));
        let (before, after) = cuts(&in_turn(64, 4), &grid(8, 8, false));
        assert!(before == 56 && after <= 20, "{before} {after}");
        let (before, after) = cuts(&in_turn(32, 4), &grid(8, 4, true));
        assert!(before >= 32 && after <= 24, "{before} {after}");
        // Two hosts, a ring.
        let ring: Vec<Edge> = (0..10).map(|at| (at, (at + 1) % 10, 1)).collect();
        assert_eq!(cuts(&in_turn(10, 2), &ring), (10, 2));
        // Hosts with different numbers of members.
        let hosts = [0, 1, 0, 2, 1, 0, 0, 2, 0, 1];
        assert_eq!(cuts(&hosts, &ring).1, 3);
    }

    #[test]
    fn optimal_order_is_kept() {
        assert_eq!(map_ranks(&[0; 16], &grid(4, 4, true)), None, "one host");
        assert_eq!(map_ranks(&[0, 0, 1, 1], &[(0, 1, 5), (2, 3, 5), (1, 2, 1)]), None);
        assert_eq!(map_ranks(&[0, 1], &[]), None);
        assert_eq!(map_ranks(&[], &[]), None);
        // Weights decide.
        let order = map_ranks(&[0, 0, 1, 1], &[(0, 2, 9), (1, 3, 9), (0, 1, 1), (2, 3, 1)]).expect("better");
        assert_eq!(order, [0, 2, 1, 3]);
    }
}
