//! Counters of the states that a simulation must reach to be worth something: a run that leaves one at zero fails.

/// Declares `struct Reached` with a counter for each name, and a description of what the counter counts.
macro_rules! reached {
    ($($name:ident $what:literal)*) => {
        /// Counters of how often a run has passed the places where bugs like to hide.
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
