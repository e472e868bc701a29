//! Upper bounds of several rails together: equations (1) to (3) of the multirail paper (MR-014 to MR-016). Rates in
//! MB/s (10^6).

/// MB in a GB.
pub const GB: f64 = 1000.0;

/// One of the equations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// (1): several cards.
    Cards,
    /// (2): several ports of a card.
    Ports,
    /// (3): several channels of a rail.
    Channels,
}

impl Term {
    /// The factors of an equation `a min(b B_IB, B_HCA, B_host)`: a multiplies the least of all rates, b the link's
    /// rate.
    pub fn factors(self, rails: usize) -> [f64; 2] {
        let rails = rails as f64;
        match self {
            Self::Cards => [rails, 1.0],
            Self::Ports => [1.0, rails],
            Self::Channels => [1.0, 1.0],
        }
    }
}

/// The rates of one rail: its link, its card's bus, and its host's slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// B_IB
    pub link: f64,
    /// B_HCA
    pub card: f64,
    /// B_host
    pub host: f64,
}

impl Rates {
    /// Rails with only their links known: bus and host do not limit them.
    pub fn of_link(link: f64) -> Self {
        Self { link, card: f64::INFINITY, host: f64::INFINITY }
    }

    /// The upper bound of what `rails` rails carry.
    pub fn bound(self, term: Term, rails: usize) -> f64 {
        let [all, links] = term.factors(rails);
        all * (links * self.link).min(self.card).min(self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's example: 4, 2 and 2 GB/s (MR-011 to MR-013).
    #[test]
    fn the_example_of_the_paper() {
        let rates = Rates { link: 2000.0, card: 2000.0, host: 4000.0 };
        let all = |rates: Rates| [Term::Cards, Term::Ports, Term::Channels].map(|term| rates.bound(term, 2));
        assert_eq!(all(rates), [4000.0, 2000.0, 2000.0]);
        let wide = Rates { card: 8000.0, ..rates };
        assert_eq!(all(wide), [4000.0, 4000.0, 2000.0]);
        assert_eq!(Rates::of_link(125.0).bound(Term::Cards, 3), 375.0);
    }
}
