//! Counters of the states that a simulation must reach to be worth something: a run that leaves one at zero fails.

/// Declares `struct Reached` with a counter for each name, and what it counts.
macro_rules! reached {
    ($($name:ident $what:literal)*) => {
        /// How often a run has been where bugs like to be.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        struct Reached {
            $($name: u64,)*
        }

        impl Reached {
            fn missing(&self) -> Vec<&'static str> {
                [$((self.$name, $what)),*].iter().filter(|(count, _)| *count == 0).map(|(_, what)| *what).collect()
            }

            fn add(&mut self, other: &Reached) {
                $(self.$name += other.$name;)*
            }
        }
    };
}
pub(crate) use reached;
