"""The fault lab: where a database and a broker disagree, under every way of sending, and what the servers hold then."""
