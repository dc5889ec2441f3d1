"""filesystems"""
