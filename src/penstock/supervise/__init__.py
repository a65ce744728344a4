"""Drivers started again by policy: processes of their own, restarted by exit code, ended when they hang, with their logs kept."""
