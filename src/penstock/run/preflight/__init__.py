"""What a changed pipeline file means for a pipeline that has run: safe, safe with an action, or broken."""
