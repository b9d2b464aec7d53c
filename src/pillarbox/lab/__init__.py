"""The fault lab: windows in which a database and a broker disagree, every way of sending, and what the servers hold after."""
