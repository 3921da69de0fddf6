//! Real servers as test partners.
