"""`slime doctor`: is this machine, as it is installed, fit for a run?"""
