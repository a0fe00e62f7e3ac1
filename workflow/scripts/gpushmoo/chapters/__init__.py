"""Chapters: a folder for each document that the report holds measurements against."""
