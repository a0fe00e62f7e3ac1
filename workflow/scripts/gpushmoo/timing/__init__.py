"""Rules of the measurement, one concern a file; none needs a device."""
