"""What other programs call: functions of other tuners, and a plugin of pytest."""
