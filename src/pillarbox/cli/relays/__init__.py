"""Behind `pillarbox relay`: one relay or several, in one process or in several."""
